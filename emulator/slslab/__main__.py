"""`python -m slslab` is the command `slslab`."""

from slslab.cli.main import main

if __name__ == "__main__":
    main()

"""Pictures that commands save."""

"""The operations of the Lambda API, by what they are about; each returns the members of AWS's answer."""

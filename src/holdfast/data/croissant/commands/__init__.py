"""The commands: each calls the function of the same name and prints its result."""

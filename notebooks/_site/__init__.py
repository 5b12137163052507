"""What the documentation site makes from the code when it is built."""

"""What a description must hold: one rule, one function; and the findings that they make."""

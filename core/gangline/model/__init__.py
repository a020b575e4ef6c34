"""Pure nouns: specs, states and their one transition table, errors, wire forms."""

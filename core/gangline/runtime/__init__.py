"""What user code imports on a rank; it talks to its supervisor only."""

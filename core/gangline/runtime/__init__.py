"""What user code imports on a rank; it talks to its supervisor only, and imports torch only inside functions."""

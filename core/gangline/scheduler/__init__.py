"""The shell of the loop: observe, plan, check, commit, act. It decides nothing itself."""

"""Post-training of a small language model: pretrain, fine-tune as a gang, evaluate, promote."""

"""Record batches and message sets: kernels, decompression, CRCs, and the inspector that reads records."""

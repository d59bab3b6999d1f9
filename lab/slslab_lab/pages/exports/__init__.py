"""Runs in the formats of other tools: CSV, Parquet, MLflow, TensorBoard. What they write is read from runs alone."""

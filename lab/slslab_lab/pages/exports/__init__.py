"""Runs in the formats of other tools: CSV, Parquet, MLflow, TensorBoard. Exports only read runs."""

"""Runs in the formats of other tools: CSV, Parquet, MLflow. Exports only read runs."""

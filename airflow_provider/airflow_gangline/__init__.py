"""Gangline for Apache Airflow: gangs of GPU nodes as deferrable tasks."""

"""models.config, batching parameters and monitoring.config: made from the models, checked, and read line by line."""

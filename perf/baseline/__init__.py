"""What a user would do without this project: the whole SavedModel inside one Python-backend model."""

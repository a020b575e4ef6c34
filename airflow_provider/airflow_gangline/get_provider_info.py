"""What Airflow reads to find this provider. Every Airflow process imports it, so it imports nothing."""


def get_provider_info() -> dict[str, object]:
    """The provider's description in the form of Airflow's provider schema."""
    name = "Gangline"
    return {
        "package-name": "gangline",
        "name": name,
        "description": "Run a task on many GPU nodes at once: a gang, scheduled all or nothing.",
        "integrations": [{"integration-name": name, "tags": ["service"]}],
        "operators": [{"integration-name": name, "python-modules": ["airflow_gangline.operators"]}],
        "hooks": [{"integration-name": name, "python-modules": ["airflow_gangline.hooks"]}],
        "triggers": [{"integration-name": name, "python-modules": ["airflow_gangline.triggers"]}],
        "connection-types": [_connection_type()],
        "extra-links": ["airflow_gangline.links.GangLink"],
    }


def _connection_type() -> dict[str, object]:
    return {
        "connection-type": "gangline",
        "hook-class-name": "airflow_gangline.hooks.GanglineHook",
        "hook-name": "Gangline",
        "conn-fields": {
            "deployment": {
                "label": "Deployment",
                "schema": {"type": ["string", "null"]},
                "description": "Names this Airflow deployment to the server; \"airflow\" when empty. "
                               "Two deployments that share a server need different names.",
            },
            "tenant": {
                "label": "Tenant",
                "schema": {"type": ["string", "null"]},
                "description": "Whose quota and bill gangs count against unless their spec says.",
            },
            "home": {
                "label": "Home of the embedded server",
                "schema": {"type": ["string", "null"]},
                "description": "Folder of the embedded server that is used when Host is empty.",
            },
        },
        "ui-field-behaviour": {
            "hidden-fields": ["schema", "login"],
            "relabeling": {"host": "Server URL", "password": "API token"},
            "placeholders": {"host": "https://gangline.example.com, or empty for the embedded server"},
        },
    }

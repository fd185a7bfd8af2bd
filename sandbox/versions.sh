# Runs in a jail at start-up: the programs that agents get, one `name value` a line; dkgi/jail/preflight.py reads them.
echo "bash $BASH_VERSION"
echo "ripgrep $(rg --version | { read -r _ version _ && echo "$version"; })"
python3 - <<'PYTHON'
import importlib.util, sys
print("python", sys.version.split()[0])
print("packages", sum(importlib.util.find_spec(name) is not None for name in ("dkgi", "pip", "numpy", "mlflow")))
PYTHON

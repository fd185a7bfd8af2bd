# Runs in a jail at start-up, with the names of programs that agents get: prints `name value` a line; dkgi/jail/preflight.py reads them.
for program; do
  case $program in
    bash) echo "bash $BASH_VERSION" ;;
    rg) echo "ripgrep $(rg --version | { read -r _ version _ && echo "$version"; })" ;;
    python3)
      python3 - <<'PYTHON'
import importlib.util, sys
print("python", sys.version.split()[0])
print("packages", sum(importlib.util.find_spec(name) is not None for name in ("dkgi", "pip", "numpy", "mlflow")))
PYTHON
      ;;
  esac
done

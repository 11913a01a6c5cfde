# Forty damages to checkpoints, as tests/torture/damage.sh does them by the hundred.
exec bash "$2/tests/torture/damage.sh" "$1" 5

# shellcheck shell=bash
# Sourced by `quickstart` and `check`. Installs Debian packages that are missing.

# install_packages <list>...: those that the files name, a line each. Returns at once when everything
# is installed. Root is used for apt-get alone.
install_packages() {
  local package missing=() apt=(apt-get)
  while read -r package; do
    case $package in '' | '#'*) continue ;; esac
    if [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) != installed ]]; then
      missing+=("$package")
    fi
  done < <(cat "$@")
  if (( ${#missing[@]} == 0 )); then return 0; fi

  if ! command -v apt-get > /dev/null; then
    echo "error: this script installs packages with apt-get, which is not here." >&2
    echo "Install what these Debian packages hold: ${missing[*]}" >&2
    return 1
  fi
  if (( EUID != 0 )); then
    if ! command -v sudo > /dev/null; then
      echo "error: packages are missing, and installing them needs root or sudo. As root, run:" >&2
      echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
      return 1
    fi
    apt=(sudo apt-get)
  fi
  echo "Installing ${missing[*]}"
  "${apt[@]}" update -q
  "${apt[@]}" install -y -q --no-install-recommends "${missing[@]}"
}

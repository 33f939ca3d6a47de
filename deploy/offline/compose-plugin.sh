#!/usr/bin/env bash
# Installs the docker compose and buildx plugins where only Debian's packages can be reached and the release's own are
# too old (Debian 12's docker-compose 1.29 refuses a modern file): it unpacks those of Debian 13 into the CLI's plugin
# folder. Does nothing where `docker compose` works.
set -euo pipefail

docker compose version >/dev/null 2>&1 && docker buildx version >/dev/null 2>&1 && exit 0

# The mirror and keyring that this machine uses already.
mirror=$(sed -nE 's/^URIs: *([^ ]+).*/\1/p; s/^deb +(\[[^]]*\] +)?([^ ]+) +bookworm +.*/\2/p' \
  /etc/apt/sources.list /etc/apt/sources.list.d/debian.* 2>/dev/null | grep -v security | head -1 || true)
[ -n "$mirror" ] || { echo "compose-plugin: no Debian mirror in /etc/apt; install docker compose v2 by hand" >&2; exit 1; }

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
chmod 755 "$dir"
mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" > "$dir/sources.list"
apt=(apt-get -qq -o "Dir::Etc::sourcelist=$dir/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$dir/lists"
  -o "Dir::Cache=$dir/cache" -o APT::Sandbox::User=root)
"${apt[@]}" update
(cd "$dir" && "${apt[@]}" download docker-compose docker-buildx)
for package in "$dir"/*.deb; do dpkg-deb -x "$package" "$dir/root"; done
plugins=/usr/local/lib/docker/cli-plugins
mkdir -p "$plugins"
find "$dir/root" -path '*cli-plugins/*' -type f -exec install -m 755 {} "$plugins/" \;
docker compose version
docker buildx version

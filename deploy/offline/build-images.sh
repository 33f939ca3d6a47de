#!/usr/bin/env bash
# Makes the base images that docker-compose.yml and deploy/Dockerfile name, locally and under their usual names, where no
# container registry can be reached. What is there already is left alone, so that a second run takes a second. It needs
# root, Docker, Debian (the machine's own mirror is used) and Go at GOROOT with its module proxy.
#
# Where `docker compose` itself is missing or too old, it installs Debian's.
#
#   deploy/offline/build-images.sh            # all of them: a quarter of an hour on two cores, most of it for Jaeger
#   deploy/offline/build-images.sh postgres   # only those whose name contains a word
#
# The web pages of Jaeger and Mailpit are not in their Go modules: their APIs answer, their pages are placeholders.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/rohrpost/offline
only=${1:-}

say() { echo "build-images: $*" >&2; }
die() { say "$*"; exit 1; }
# shown runs a command that takes minutes, and every half minute tells what it is at. What else the command says is shown if
# it fails.
shown() {
  local log start=$SECONDS pid
  log=$(mktemp)
  "$@" >"$log" 2>&1 &
  pid=$!
  while sleep 1; kill -0 "$pid" 2>/dev/null; do
    (((SECONDS - start) % 30)) || say "  $((SECONDS - start)) s: $(tail -n 1 "$log")"
  done
  if ! wait "$pid"; then
    tail -n 20 "$log" >&2
    rm "$log"
    return 1
  fi
  rm "$log"
  say "  done after $((SECONDS - start)) s"
}
# patient tries twice: mirrors and proxies have bad moments.
patient() { shown "$@" || { say "once more"; shown "$@"; }; }
have() { docker image inspect "$1" >/dev/null 2>&1; }
wanted() { [[ $1 == *"$only"* ]]; }
# named finds the tag by which the compose file or the Dockerfile calls an image.
named() {
  local tag
  tag=$(sed -nE "s#^(FROM| *image:) +($1:[A-Za-z0-9._-]+).*#\\2#p" "$repo/docker-compose.yml" "$repo/deploy/Dockerfile" | head -1)
  [ -n "$tag" ] || die "neither docker-compose.yml nor deploy/Dockerfile names an image $1"
  echo "$tag"
}

docker version >/dev/null 2>&1 || die "no Docker engine answers; start dockerd"
"$here/compose-plugin.sh"

# bootstrap begins with an empty folder each time.
bootstrap() { find "$2" -mindepth 1 -delete && debootstrap --variant=minbase --include=ca-certificates "$@"; }

# debian makes debian:SUITE by debootstrap. The tar goes into the engine by a pipe: nothing is left on the disk.
debian() {
  local suite=$1 dir
  have "debian:$suite" && return
  [ "$(id -u)" = 0 ] || die "debian:$suite: debootstrap needs root"
  command -v debootstrap >/dev/null || { apt-get -qq update; apt-get -qq install -y debootstrap >/dev/null; }
  local mirror
  mirror=$(sed -nE 's/^URIs: *([^ ]+).*/\1/p; s/^deb +(\[[^]]*\] +)?([^ ]+) .* main.*/\2/p' \
    /etc/apt/sources.list /etc/apt/sources.list.d/debian.* 2>/dev/null | grep -v security | head -1 || true)
  [ -n "$mirror" ] || die "debian:$suite: no Debian mirror in /etc/apt"
  say "debian:$suite by debootstrap"
  # In memory where there is some: dpkg syncs every file.
  dir=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
  patient bootstrap "$suite" "$dir" "$mirror" || die "debootstrap of $suite failed"
  # What the machine trusts, the image trusts: closed networks often have an authority of their own.
  cp /etc/ssl/certs/ca-certificates.crt "$dir/etc/ssl/certs/ca-certificates.crt"
  rm -rf "$dir"/var/cache/apt/archives/*.deb "$dir"/var/lib/apt/lists/*
  tar -C "$dir" -c . | docker import --change 'CMD ["bash"]' - "debian:$suite" >/dev/null
  rm -rf "$dir"
}

# golang is Debian with the machine's own Go, which knows where its modules come from.
golang() {
  local image
  image=$(named golang)
  wanted "$image" && ! have "$image" || return 0
  debian bookworm
  say "$image from $(go env GOROOT)"
  shown docker build --progress plain -t "$image" -f "$here/golang.Dockerfile" \
    --build-arg "GOPROXY=$(go env GOPROXY)" --build-arg "GOSUMDB=$(go env GOSUMDB)" "$(go env GOROOT)"
}

postgres() {
  local image
  image=$(named postgres)
  wanted "$image" && ! have "$image" || return 0
  debian trixie
  say "$image"
  patient docker build --progress plain -t "$image" --build-arg "MAJOR=${image#*:}" "$here/postgres"
}

# from_module builds a program from its Go module and puts it on an empty file system.
from_module() {
  local name=$1 package=$2 flags=$3 image context
  image=$(named "[a-z]+/$name")
  wanted "$image" && ! have "$image" || return 0
  mkdir -p "$cache"
  if [ ! -x "$cache/$name-${image#*:}" ]; then
    say "$image: building $package"
    GOWORK=off CGO_ENABLED=0 patient nice -n 19 go -C "$here/$name" build -v -trimpath -ldflags "-s -w $flags" \
      -o "$cache/$name-${image#*:}" "$package"
  fi
  say "$image"
  context=$(mktemp -d)
  cp "$cache/$name-${image#*:}" "$context/$name"
  cp /etc/ssl/certs/ca-certificates.crt "$context/"
  docker build -q -t "$image" -f "$here/$name/Dockerfile" "$context" >/dev/null
  rm -rf "$context"
}

golang
postgres
from_module mailpit github.com/axllent/mailpit "-X github.com/axllent/mailpit/config.Version=v1.33.1"
from_module jaeger github.com/jaegertracing/jaeger/cmd/jaeger ""
say "all images are there"

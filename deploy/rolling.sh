#!/usr/bin/env bash
# Brings every service to the current image and configuration, one after the other, while mail goes on. Each gets new
# containers beside the old ones; once they are healthy, the old ones are stopped in order: a gateway finishes its mails and
# tells idle clients 421, a worker finishes its jobs, a spool hands its messages over.
#
#   ROHRPOST_TAG=1.2.3 deploy/rolling.sh                  # all of them; the image must be there
#   ROHRPOST_TAG=1.2.3 deploy/rolling.sh parser filter    # only these
#
# A port of the host belongs to one container, so a service with one is replaced in place and away for a second or two. For
# the gateway take deploy/compose.scale.yaml, which gives the port up, and send to gateway:2525 inside the network:
#
#   export COMPOSE_FILE=docker-compose.yml:deploy/compose.scale.yaml
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { echo "rolling: $*" >&2; }

# roll replaces the containers of a service.
roll() {
  local service=$1 old
  mapfile -t old < <(docker compose ps -q "$service")
  if [ ${#old[@]} -eq 0 ]; then
    say "$service does not run"
  elif [ "$(docker inspect --format '{{len .HostConfig.PortBindings}}' "${old[0]}")" != 0 ]; then
    say "$service in place, since it has a port of the host"
    docker compose up -d --wait --no-deps "$service"
  else
    say "$service"
    docker compose up -d --wait --no-deps --no-recreate --scale "$service=$((2 * ${#old[@]}))" "$service"
    docker stop "${old[@]}" >/dev/null
    docker rm "${old[@]}" >/dev/null
  fi
}

# The tables first: every version works with those of the next.
docker compose run --rm --no-deps -T migrate
services=("$@")
[ ${#services[@]} -gt 0 ] || services=(spool parser filter deliver console gateway)
for service in "${services[@]}"; do roll "$service"; done

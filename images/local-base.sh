#!/usr/bin/env bash
# Creates a small Debian with Python in a new folder, for machines without access to an image registry: images/local-base.sh FOLDER
# It needs root and debootstrap. tests/containers imports the folder as the BASE of every image instead of the public Python image.
set -euo pipefail
folder=${1:?usage: images/local-base.sh FOLDER}
debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$folder"
# Remove files that only further installations need, and files that identify this machine.
rm -rf "$folder"/var/cache/apt/archives/*.deb "$folder"/var/lib/apt/lists/* "$folder"/var/log/* "$folder"/usr/share/doc/*
: > "$folder/etc/hostname"
: > "$folder/etc/resolv.conf"

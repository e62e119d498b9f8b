#!/usr/bin/env bash
# Makes a small Debian with Python in a new folder, for machines that reach no registry of images: images/local-base.sh FOLDER
# Needs root and debootstrap. tests/containers imports the folder as the BASE of every image, in place of the public Python image.
set -euo pipefail
folder=${1:?usage: images/local-base.sh FOLDER}
debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$folder"
# What apt and debootstrap leave behind for a machine that installs more, and what names this very machine.
rm -rf "$folder"/var/cache/apt/archives/*.deb "$folder"/var/lib/apt/lists/* "$folder"/var/log/* "$folder"/usr/share/doc/*
: > "$folder/etc/hostname"
: > "$folder/etc/resolv.conf"

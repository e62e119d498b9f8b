"""What a rate of frames needs: cores, GPUs, servers, network and memory, from measured figures."""

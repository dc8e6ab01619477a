// Which cluster a GPU's name stands for.
#pragma once
#include <string>

namespace trireme::cli {

// The shipped cluster of this name or else, of those whose device has a name that begins with these
// words, the DGX, of several the shortest name: "h100" is dgx-h100, "gb200" gb200-nvl72. The whole
// system takes the place of --cluster, links included: a device with the links of another
// generation is nothing that exists. What has a '/' is a file, and stays as it is. Refuses
// (flags.h) any other name, with the nearest GPU.
std::string clusterOfGpu(const std::string& flag, const std::string& name);

}  // namespace trireme::cli

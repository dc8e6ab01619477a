// Which cluster a GPU's name stands for.
#pragma once
#include <string>
#include <vector>

#include "ir/base/status.h"

namespace trireme::planner {

// The shipped cluster of this name or else, of those whose device has a name that begins with these
// words, the DGX, of several the shortest name: "h100" is dgx-h100, "gb200" gb200-nvl72. The whole
// system takes the place of --cluster, links included: a device with the links of another
// generation is nothing that exists. What has a '/' is a file, and stays as it is.
// kInvalidArgument: any other name; the message has the nearest GPU.
Result<std::string> clusterOfGpu(const std::string& name);

// The first words of the devices of shipped clusters that are no hosts: "a100", "b200"...
std::vector<std::string> gpuNames();

}  // namespace trireme::planner

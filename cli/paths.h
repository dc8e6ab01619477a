// The files that a command reads and writes, checked before it does either.
#pragma once
#include <string>
#include <vector>

#include "ir/base/status.h"

namespace trireme::cli {

// A path of the command line, under the flag that named it. An empty path is one that nobody gave.
struct NamedPath {
  std::string flag;  // "--metrics"
  std::string path;
  bool isBundle = false;  // a folder in which nothing else may be written
};

// Nothing that the command writes may be something that it reads, something else that it writes, or
// a file inside of a bundle. Links are followed; devices and pipes hold nothing and may repeat.
// kInvalidArgument: names both flags and the path.
Status checkOutputs(const std::vector<NamedPath>& inputs, const std::vector<NamedPath>& outputs);

// What keeps a result file or a file in `folder` from being written, as far as it shows before.
// kUnavailable: the folder is missing or not writable, or `path` is itself a folder.
Status checkWritable(const std::string& path);
Status checkWritableFolder(const std::string& folder);

}  // namespace trireme::cli

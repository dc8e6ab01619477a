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
  bool isBundle = false;  // the folder of a bundle, in which nothing else may be written
};

// Nothing that the command writes may be something that it reads, something else that it writes, or
// inside of a bundle, of this command or any other: a bundle that holds more than its own files
// cannot be replaced. Links are followed; devices and pipes hold nothing and may repeat.
// kInvalidArgument: names both flags and the path, or the bundle.
Status checkOutputs(const std::vector<NamedPath>& inputs, const std::vector<NamedPath>& outputs);

// What keeps a result file or a file in `folder` from being written, as far as it shows before.
// kUnavailable: the folder is missing or not writable, or `path` is itself a folder.
Status checkWritable(const std::string& path);
Status checkWritableFolder(const std::string& folder);
// Creates the folder if it is not there. kUnavailable: it cannot be, is a file, or nothing can be
// written in it.
Status createFolder(const std::string& folder);

}  // namespace trireme::cli

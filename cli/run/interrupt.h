// Ctrl-C and a closed terminal as a request.
#pragma once

namespace trireme::cli {

// While one of these lives, the first SIGINT or SIGTERM only sets a flag, and a second one ends the
// process as usual. So does every SIGHUP, unless it is ignored (nohup), but for ending the process.
// One at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool requested() const;
};

}  // namespace trireme::cli

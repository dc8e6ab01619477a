// Ctrl-C as a request.
#pragma once

namespace trireme::cli {

// While one of these lives, the first SIGINT or SIGTERM only sets a flag; a second one ends the
// process as usual. One at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool requested() const;
};

}  // namespace trireme::cli

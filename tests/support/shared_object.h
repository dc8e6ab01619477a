// A shared object that a test compiled.
#pragma once
#include <string>

namespace trireme::testing {

// dlopen() of the bytes; null, with a failed expectation, if the system refuses them.
void* loadSharedObject(const std::string& bytes);

}  // namespace trireme::testing

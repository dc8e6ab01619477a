// The one error type of the project: a code that says what the caller can do next, and a message.
#pragma once
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace trireme {

enum class StatusCode {
  kOk,
  kInvalidArgument,    // Fix the input: the message says where and what was expected.
  kInfeasible,         // No plan satisfies the constraints: relax one of those listed.
  kResourceExhausted,  // Disk, memory or file handles ran out.
  kUnavailable,        // Retry, or replace the peer.
  kInternal,           // A bug: report it.
};

std::string_view statusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same error seen from one level up: "context: message". A success stays a success.
  Status withContext(std::string_view context) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

template <typename T>
using Result = tl::expected<T, Status>;
using Error = tl::unexpected<Status>;

inline Status invalidArgument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}
inline Status infeasible(std::string message) {
  return {StatusCode::kInfeasible, std::move(message)};
}
inline Status resourceExhausted(std::string message) {
  return {StatusCode::kResourceExhausted, std::move(message)};
}
inline Status unavailable(std::string message) {
  return {StatusCode::kUnavailable, std::move(message)};
}
inline Status internalError(std::string message) {
  return {StatusCode::kInternal, std::move(message)};
}

// Prints `what` with the place and aborts. Only for programmer errors.
[[noreturn]] void checkFailed(const char* what, const char* file, int line);

}  // namespace trireme

#define TRIREME_CHECK(condition) \
  ((condition) ? (void)0 : ::trireme::checkFailed(#condition, __FILE__, __LINE__))

// Returns early from a function that returns Status or Result.
#define TRIREME_RETURN_IF_ERROR(expression)                                    \
  do {                                                                         \
    if (::trireme::Status triremeStatus_ = (expression); !triremeStatus_.ok()) \
      return ::trireme::toReturn(std::move(triremeStatus_));                   \
  } while (false)

#define TRIREME_CONCAT_INNER_(a, b) a##b
#define TRIREME_CONCAT_(a, b) TRIREME_CONCAT_INNER_(a, b)
// TRIREME_ASSIGN_OR_RETURN(auto x, f()): x is f()'s value, or the error is returned.
#define TRIREME_ASSIGN_OR_RETURN(declaration, expression) \
  TRIREME_ASSIGN_OR_RETURN_(TRIREME_CONCAT_(result_, __LINE__), declaration, expression)
#define TRIREME_ASSIGN_OR_RETURN_(name, declaration, expression)              \
  auto name = (expression);                                                   \
  if (!name.has_value()) return ::trireme::toReturn(std::move(name).error()); \
  declaration = std::move(name).value()

namespace trireme {
// Converts to Status or to any Result<T>, so that the macros serve both kinds of function.
struct ReturnedError {
  Status status;
  operator Status() && { return std::move(status); }
  template <typename T>
  operator Result<T>() && {
    return Error(std::move(status));
  }
};
inline ReturnedError toReturn(Status status) { return {std::move(status)}; }
}  // namespace trireme

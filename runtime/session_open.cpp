#include "runtime/session.h"

namespace trireme::runtime {

Result<std::unique_ptr<Session>> Session::open(const std::string& folder, SessionOptions options) {
  TRIREME_ASSIGN_OR_RETURN(program::Bundle bundle, program::readBundle(folder));
  Result<std::unique_ptr<Session>> session = create(std::move(bundle), std::move(options));
  if (!session.has_value()) return Error(session.error().withContext(folder));
  return session;
}

}  // namespace trireme::runtime

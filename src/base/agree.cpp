// SPDX-License-Identifier: Apache-2.0
/// One small reduction decides whether anybody failed; only then is a message broadcast.
#include "llmtrain/base/agree.hpp"

#include <cstdio>
#include <string>

namespace llmtrain {

void agree(const MpiComm& comm, const std::function<void()>& check) {
  ExitCode code = ExitCode::done;
  std::string message;
  try {
    with_errors(check);
  } catch (const Error& error) {
    code = error.code();
    message = error.what();
  }
  const int nobody = comm.size();
  const std::int64_t mine = code == ExitCode::done ? nobody : comm.rank();
  const auto first = static_cast<int>(comm.all_reduce(mine, MpiOp::min));
  if (first == nobody) return;
  auto agreed = static_cast<std::int64_t>(code);
  comm.broadcast(std::as_writable_bytes(std::span(&agreed, 1)), first);
  throw AgreedError(static_cast<ExitCode>(agreed), comm.broadcast(message, first));
}

void agree_on_root(const MpiComm& comm, const std::function<void()>& check) {
  agree(comm, [&] {
    if (comm.rank() == 0) check();
  });
}

void end_job(const MpiComm& world, const Error& error) {
  std::fputs(fmt::format("rank {}: {}", world.rank(), error_text(error)).c_str(), stderr);  // never throws
  world.abort(static_cast<int>(error.code()));
}

}  // namespace llmtrain

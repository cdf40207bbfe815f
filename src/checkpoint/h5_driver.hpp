// SPDX-License-Identifier: Apache-2.0
/// A file driver for writing: the library never sees a write fail. After a failure it could neither close the file's
/// objects nor the file (the disk space stays taken, and the program ends in a crash), so the driver notes the failure,
/// drops what follows, and the writer looks at the note.
#pragma once

#include <string>

#include "h5_handle.hpp"

namespace llmtrain::h5 {

/// What went wrong first with a file; empty while nothing did. Must outlive the file.
struct WriteFailure {
  std::string reason;
};

/// Access properties whose file notes its failures in `failure`.
Id writing_properties(WriteFailure& failure);

}  // namespace llmtrain::h5

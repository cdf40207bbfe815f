// SPDX-License-Identifier: Apache-2.0
/// Whether a person watches an output, and how wide the window is.
#pragma once

#include "llmtrain/base/files.hpp"

namespace llmtrain {

/// The terminal that shows what is written to a descriptor, if one does that can move its cursor (TERM). Open MPI gives
/// its ranks a terminal of their own whatever its output is: there it is mpirun's that counts.
class Terminal {
 public:
  Terminal() = default;  ///< none
  explicit Terminal(int fd);

  explicit operator bool() const { return static_cast<bool>(file_); }
  int columns() const;  ///< now; 80 if it does not tell
  bool colors() const;  ///< false if NO_COLOR is set (no-color.org)

 private:
  FileDescriptor file_;  ///< for questions only
};

}  // namespace llmtrain

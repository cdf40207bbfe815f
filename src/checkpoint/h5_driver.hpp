// SPDX-License-Identifier: Apache-2.0
/// A file driver for writing: the library never sees a write fail. After a failure it could neither close the file's
/// objects nor the file (the disk space stays taken, and the program ends in a crash), so the driver notes the failure,
/// drops what follows, and the writer looks at the note. It also keeps an image of the file for its digest.
#pragma once

#include <string>

#include "file_image.hpp"
#include "h5_handle.hpp"

namespace llmtrain::h5 {

/// What became of a file. Must outlive it.
struct WriteRecord {
  std::string failure;  ///< what went wrong first; empty while nothing did
  FileImage image;      ///< large arrays are borrowed from whoever had them written
};

/// Access properties whose file keeps this record.
Id writing_properties(WriteRecord& record);

}  // namespace llmtrain::h5

// SPDX-License-Identifier: Apache-2.0
/// Reads of files and pipes, and zlib and libzstd around them.
#include "llmtrain/tools/byte_source.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "llmtrain/base/error.hpp"

namespace llmtrain {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 18;
constexpr int wait_milliseconds = 100;

}  // namespace

Packing packing_of(std::span<const char> first_bytes) {
  const std::string_view first(first_bytes.data(), first_bytes.size());
  if (first.starts_with("\x1F\x8B")) return Packing::gzip;
  if (first.starts_with("\x28\xB5\x2F\xFD")) return Packing::zstd;
  // A skippable frame may come first: 0x184D2A50 to 5F.
  if (first.size() >= 4 && (first[0] & 0xF0) == 0x50 && first.substr(1, 3) == "\x2A\x4D\x18") return Packing::zstd;
  return Packing::none;
}

class ByteSource::Unpacker {
 public:
  virtual ~Unpacker() = default;
  /// Moves bytes of `in` to `out`, shortens `in` by what it took, returns what it gave. Throws Error(bad_input).
  virtual std::size_t unpack(const ByteSource& source, std::span<const char>& in, std::span<char> out) = 0;
  /// Whether the data may end here.
  virtual bool is_whole() const = 0;
};

class ByteSource::Gzip final : public Unpacker {
 public:
  Gzip() {
    constexpr int gzip_of_any_window = 15 + 16;
    require(::inflateInit2(&stream_, gzip_of_any_window) == Z_OK, ExitCode::out_of_memory, "zlib: no memory");
  }
  ~Gzip() override { ::inflateEnd(&stream_); }

  std::size_t unpack(const ByteSource& source, std::span<const char>& in, std::span<char> out) override {
    if (whole_) {  // another member follows, or zeros that fill a tape's block
      const auto rest = std::find_if(in.begin(), in.end(), [](char c) { return c != 0; });
      in = in.subspan(static_cast<std::size_t>(rest - in.begin()));
      if (in.empty()) return 0;
      if (in.front() != '\x1F') source.damaged("something that is not gzip follows its data");
      ::inflateReset(&stream_);
      whole_ = false;
    }
    constexpr std::size_t most = std::numeric_limits<uInt>::max();
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(std::min(out.size(), most));
    const uInt room = stream_.avail_out;
    const int status = ::inflate(&stream_, Z_NO_FLUSH);
    in = in.last(stream_.avail_in);
    whole_ = status == Z_STREAM_END;
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
      source.damaged(stream_.msg != nullptr ? stream_.msg : "its gzip data are damaged");
    return room - stream_.avail_out;
  }
  bool is_whole() const override { return whole_; }

 private:
  z_stream stream_{};
  bool whole_ = false;
};

class ByteSource::Zstd final : public Unpacker {
 public:
  Zstd() { require(stream_ != nullptr, ExitCode::out_of_memory, "zstd: no memory"); }
  ~Zstd() override { ::ZSTD_freeDStream(stream_); }

  std::size_t unpack(const ByteSource& source, std::span<const char>& in, std::span<char> out) override {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    const std::size_t left = ::ZSTD_decompressStream(stream_, &to, &from);
    if (::ZSTD_isError(left) != 0) source.damaged(::ZSTD_getErrorName(left));
    in = in.subspan(from.pos);
    whole_ = left == 0;
    return to.pos;
  }
  bool is_whole() const override { return whole_; }

 private:
  ZSTD_DStream* stream_ = ::ZSTD_createDStream();
  bool whole_ = false;
};

ByteSource::ByteSource(std::string path, std::int64_t begin, const std::atomic<bool>& stop)
    : path_(std::move(path)), stop_(stop), begin_(begin), buffer_(buffer_bytes) {
  file_ = FileDescriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file_) fail(ExitCode::missing_input, "cannot open {}: {}", path_, errno_text(errno));
  struct stat status {};
  waits_ = ::fstat(file_.get(), &status) == 0 && !S_ISREG(status.st_mode);
  if (begin_ > 0) {
    require(::lseek(file_.get(), begin_, SEEK_SET) == begin_, ExitCode::io_error, "cannot read {} from byte {} on: {}",
            path_, begin_, errno_text(errno));
    return;
  }
  std::size_t known = 0;  // a pipe may give the first bytes one by one
  while (known < 4) {
    const std::size_t got = read_raw(std::span(buffer_).subspan(known));
    if (got == 0) break;
    known += got;
  }
  ahead_ = std::span(buffer_).first(known);
  const Packing packing = packing_of(ahead_);
  if (packing == Packing::gzip) unpacker_ = std::make_unique<Gzip>();
  if (packing == Packing::zstd) unpacker_ = std::make_unique<Zstd>();
}

ByteSource::~ByteSource() = default;

void ByteSource::damaged(const std::string& what) const {
  fail(ExitCode::bad_input, "{}: before byte {} of the packed file: {}; pack or copy it again", path_, consumed_, what);
}

std::size_t ByteSource::read_raw(std::span<char> out) {
  for (;;) {
    if (waits_) {
      pollfd wanted{file_.get(), POLLIN, 0};
      while (::poll(&wanted, 1, wait_milliseconds) == 0 && !stop_) {
      }
    }
    if (stop_) return 0;
    const ssize_t got = ::read(file_.get(), out.data(), out.size());
    if (got < 0 && errno == EINTR) continue;
    require(got >= 0, ExitCode::io_error, "reading {} after byte {} failed: {}", path_, begin_ + consumed_,
            errno_text(errno));
    consumed_ += got;
    return static_cast<std::size_t>(got);
  }
}

bool ByteSource::refill() {
  ahead_ = std::span(buffer_).first(read_raw(buffer_));
  return !ahead_.empty();
}

std::size_t ByteSource::read(std::span<char> out) {
  if (unpacker_ == nullptr) {
    if (ahead_.empty()) return read_raw(out);
    const auto known = ahead_.first(std::min(ahead_.size(), out.size()));
    std::copy(known.begin(), known.end(), out.begin());
    ahead_ = ahead_.subspan(known.size());
    return known.size();
  }
  for (;;) {
    const bool has_input = !ahead_.empty() || refill();
    if (stop_) return 0;
    if (!has_input && unpacker_->is_whole()) return 0;
    const std::size_t got = unpacker_->unpack(*this, ahead_, out);  // without input too: it may hold back output
    if (got > 0) return got;
    if (!has_input) damaged("the file ends within its data: it was cut");
  }
}

}  // namespace llmtrain

"""The C interface (runtime/api/sluice.h) through ctypes, as far as the soak uses it."""
import ctypes

OK, ARGUMENT, FAILED, ABORTED, CANCELLED = 0, 1, 2, 3, 5
TYPES = {"F32": 0, "BF16": 1, "F16": 2, "I32": 3, "I64": 4}
Handle = ctypes.c_void_p


class Tensor(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("type", ctypes.c_int32), ("dim_count", ctypes.c_int32),
                ("dims", ctypes.POINTER(ctypes.c_int64)), ("data", ctypes.c_void_p), ("flags", ctypes.c_uint32),
                ("reserved", ctypes.c_uint32)]


class ContextOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("workspace", ctypes.c_void_p), ("threads", ctypes.c_int32),
                ("pinning", ctypes.c_int32), ("executor", ctypes.c_int32), ("pack_each_step", ctypes.c_int32),
                ("timeout_seconds", ctypes.c_double), ("packed_bytes", ctypes.c_int64)]


class WorkspaceOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("threads", ctypes.c_int32), ("pinning", ctypes.c_int32)]


class JobOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("rank", ctypes.c_int32), ("ranks", ctypes.c_int32),
                ("timeout_seconds", ctypes.c_double)]


SIGNATURES = {
    "program_load": [ctypes.c_char_p, ctypes.POINTER(Handle)],
    "program_from_memory": [ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(Handle)],
    "transport_threads": [ctypes.c_int32, ctypes.POINTER(Handle)],
    "transport_join": [ctypes.POINTER(JobOptions), ctypes.POINTER(Handle)],
    "transport_abort": [Handle, ctypes.c_char_p],
    "workspace_create": [Handle, ctypes.POINTER(WorkspaceOptions), ctypes.POINTER(Handle)],
    "context_create": [Handle, Handle, ctypes.POINTER(ContextOptions), ctypes.POINTER(Handle)],
    "context_bind": [Handle, ctypes.c_char_p, ctypes.POINTER(Tensor)],
    "context_output": [Handle, ctypes.c_char_p, ctypes.POINTER(Tensor)],
    "context_run": [Handle, ctypes.c_char_p, ctypes.c_uint32],
    "context_refuse": [Handle, ctypes.c_uint32, ctypes.c_char_p],
    "context_submit": [Handle, ctypes.c_char_p, ctypes.c_uint32, ctypes.POINTER(Handle)],
    "step_wait": [Handle],
    "step_cancel": [Handle],
}
FREED = ("program", "transport", "workspace", "context", "step")


class Failure(Exception):
    def __init__(self, status, message):
        super().__init__(f"status {status}: {message}")
        self.status, self.message = status, message


class Library:
    def __init__(self, path):
        library = ctypes.CDLL(path)
        library.sluice_last_error.restype = ctypes.c_char_p
        self._last_error = library.sluice_last_error
        self._functions = {}
        for name, arguments in SIGNATURES.items():
            self._functions[name] = getattr(library, "sluice_" + name)
            self._functions[name].argtypes = arguments
        for name in FREED:
            self._functions[name + "_free"] = getattr(library, f"sluice_{name}_free")
            self._functions[name + "_free"].argtypes = [Handle]
            self._functions[name + "_free"].restype = None

    def status(self, name, *arguments):
        return self._functions[name](*arguments)

    def call(self, name, *arguments):
        status = self._functions[name](*arguments)
        if status != OK:
            raise Failure(status, self._last_error().decode(errors="replace"))

    def make(self, name, *arguments):
        """Returns the handle that the function writes to its last parameter."""
        handle = Handle()
        self.call(name, *arguments, ctypes.byref(handle))
        return handle

    def free(self, kind, handle):
        self._functions[kind + "_free"](handle)


class Bound:
    """A tensor of the caller, of a type of TYPES: memory that does not move."""

    def __init__(self, kind, shape, content):
        self.kind, self.shape, self.start = kind, shape, content
        self.memory = ctypes.create_string_buffer(content, max(1, len(content)))
        self.dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        self.view = Tensor(ctypes.sizeof(Tensor), TYPES[kind], len(shape), self.dims, ctypes.addressof(self.memory), 0, 0)

    def of_type(self, kind):
        """The same tensor, declared with another type."""
        return Tensor(self.view.size, TYPES[kind], self.view.dim_count, self.dims, self.view.data, 0, 0)

    def reset(self):
        ctypes.memmove(self.memory, self.start, len(self.start))

    def content(self):
        return self.memory.raw[:len(self.start)]

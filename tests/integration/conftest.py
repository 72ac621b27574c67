"""Shared pieces of the end-to-end tests: the real binary, a real gRPC client, both demo models.

MOE_BINARY names the binary; stubs are generated from the project's own proto files.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import socket
import sys
import tempfile
import time
import urllib.error
import urllib.request

import grpc
import pytest
from grpc_tools import protoc

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.path.abspath(os.environ.get("MOE_BINARY", str(ROOT / "build/release/moe")))

_stubs = tempfile.mkdtemp(prefix="moe-stubs-")
_code = protoc.main(["protoc", f"-I{ROOT / 'proto'}", f"--python_out={_stubs}", f"--grpc_python_out={_stubs}",
                     str(ROOT / "proto/moe/v1/inference.proto")])
assert _code == 0, "protoc failed"
sys.path.insert(0, _stubs)

from moe.v1 import inference_pb2 as pb  # noqa: E402
from moe.v1 import inference_pb2_grpc as pb_grpc  # noqa: E402

# Slower machines and sanitizer builds scale every time limit.
PATIENCE = float(os.environ.get("MOE_TEST_PATIENCE", "1"))


class Server:
    """`moe serve` with the given flags; ends with the test."""

    def __init__(self, *flags, model=None, env=None, wait=True, admin=False):
        command = [BINARY, "serve", *flags, "--admin-port", str(free_port() if admin else 0)]
        if "--port" not in flags:
            command += ["--port", "0"]
        if model:
            command += ["--model", str(model)]
        self.log_file = tempfile.NamedTemporaryFile("w+b", suffix=".log")
        self.process = subprocess.Popen(command, stderr=self.log_file, stdout=subprocess.DEVNULL,
                                        env={**os.environ, **(env or {})}, cwd="/")
        self.address = None
        self._channels = []
        if wait:
            self.wait_ready()

    def log(self):
        with open(self.log_file.name, "rb") as f:
            return f.read().decode("utf-8", "replace")

    def wait_ready(self, seconds=30):
        end = time.time() + seconds * PATIENCE
        while time.time() < end:
            found = re.search(r"listening on ([0-9.]+:[0-9]+)", self.log())
            if found:
                self.address = found.group(1)
                return
            if self.process.poll() is not None:
                raise AssertionError(f"server ended with {self.process.returncode}:\n{self.log()}")
            time.sleep(0.01)
        raise AssertionError("server did not come up:\n" + self.log())

    @property
    def admin(self):
        return re.search(r"http://([0-9.]+:[0-9]+)", self.log()).group(1)

    def http(self, path):
        """(status, body) of the admin port."""
        try:
            with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metrics(self):
        """name{labels} → value."""
        lines = [line for line in self.http("/metrics")[1].splitlines() if line and not line.startswith("#")]
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}

    def metric(self, name, **labels):
        """Sum of the series of a name that carry all these labels."""
        total = 0
        for series, value in self.metrics().items():
            if series.partition("{")[0] == name and all(f'{k}="{v}"' in series for k, v in labels.items()):
                total += value
        return total

    def channel(self, options=()):
        channel = grpc.insecure_channel(self.address, options=[
            ("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1), *options])
        self._channels.append(channel)
        return channel

    def stub(self, **kwargs):
        return pb_grpc.InferenceStub(self.channel(**kwargs))

    def operations(self):
        return pb_grpc.OperationsStub(self.channel())

    def load(self):
        """Sum over ranks of GetLoad."""
        ranks = self.operations().GetLoad(pb.GetLoadRequest()).ranks
        return (sum(r.running_requests for r in ranks), sum(r.waiting_requests for r in ranks),
                sum(r.used_kv_tokens for r in ranks))

    def wait_idle(self, seconds=5):
        return wait_until(lambda: self.load() == (0, 0, 0), seconds)

    def stop(self):
        for channel in self._channels:
            channel.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.log_file.close()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.stop()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(condition, seconds=5):
    end = time.time() + seconds * PATIENCE
    while time.time() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def demo_dir(name):
    return ROOT / "loaders/demo" / name


def golden(name):
    with open(ROOT / f"tests/data/demo/{name}.golden.json", encoding="utf-8") as f:
        return json.load(f)


def request(text=None, ids=None, **kwargs):
    """A GenerateRequest; fields of sampling, stopping and output may be given by name."""
    message = pb.GenerateRequest()
    if text is not None:
        message.text = text
    if ids is not None:
        message.tokens.ids.extend(ids)
    for name, value in kwargs.items():
        for part in (message.sampling, message.stopping, message.output, message):
            field = part.DESCRIPTOR.fields_by_name.get(name)
            if field is None:
                continue
            if name == "logit_bias":
                for key, bias in value.items():
                    part.logit_bias[key] = bias
            elif hasattr(getattr(part, name), "extend"):
                getattr(part, name).extend(value)
            else:
                setattr(part, name, value)
            break
        else:
            raise AssertionError(f"no field {name}")
    return message


def collect(chunks):
    """Joins a stream: per choice (text, ids, finish reason)."""
    choices = {}
    for chunk in chunks:
        text, ids, finish = choices.get(chunk.index, ("", [], 0))
        choices[chunk.index] = (text + chunk.delta.text, ids + list(chunk.delta.token_ids),
                                chunk.delta.finish_reason or finish)
    return choices


def status_of(call):
    """The status code and message that a call fails with."""
    with pytest.raises(grpc.RpcError) as error:
        call()
    return error.value.code(), error.value.details()


@pytest.fixture(scope="session")
def nemotron():
    """The default server: the embedded demo model."""
    with Server(admin=True) as server:
        yield server


@pytest.fixture(scope="session")
def qwen():
    with Server(model=demo_dir("shakespeare-qwen3moe")) as server:
        yield server

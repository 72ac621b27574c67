"""A rank that cannot be reached for a while: through a proxy that hangs, and in a network namespace whose link goes down."""
import contextlib
import os
import socket
import subprocess
import tempfile
import threading
import time
import uuid

import pytest

import chaos
from conftest import BINARY, PATIENCE, Server, demo_dir, free_port, wait_until


@contextlib.contextmanager
def joined(front, *flags, model=None, secret=None, prefix=(), host="127.0.0.1"):
    """A rank process of our own."""
    command = [*prefix, BINARY, "serve", "--join", front, "--rank-host", host, *flags]
    if model:
        command += ["--model", str(model)]
    log = tempfile.NamedTemporaryFile("w+b", suffix=".log")
    environment = {**os.environ, **({"MOE_RANK_SECRET": secret} if secret else {})}
    process = subprocess.Popen(command, stderr=log, stdout=subprocess.DEVNULL, env=environment, cwd="/")
    process.log = lambda: open(log.name, "rb").read().decode("utf-8", "replace")
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        log.close()


def front_waiting_for(local, *flags, model=None, port, secret):
    return Server("--expert-parallel-size", "2", "--local-ranks", str(local), "--rank-port", str(port), *flags,
                  model=model, env={"MOE_RANK_SECRET": secret}, wait=False, admin=True)


class Proxy:
    """A TCP proxy whose connections can be made to hang, as a broken network does."""

    def __init__(self, to_port):
        self.to_port = to_port
        self.hangs = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.to_port))
            except OSError:
                return
            for a, b in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=(a, b), daemon=True).start()

    def _copy(self, source, target):
        try:
            while data := source.recv(65536):
                while self.hangs.is_set():
                    time.sleep(0.01)
                target.sendall(data)
        except OSError:
            pass
        for s in (source, target):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.close()


def expect_partitions(server, model, cut, mend, times):
    """Streams go on while a rank is unreachable, and it comes back as part of a later generation. Seconds until the front
    knew, and until all streams went on, each time."""
    requests = chaos.asks()
    with Server(model=model) as alone:
        expected = [chaos.answer(alone.stub(), ask) for ask in requests]
    load = chaos.Load(server, 8, requests, expected)
    known_after, gaps = [], []
    try:
        assert wait_until(lambda: len(load.running()) > 4, 30)
        for _ in range(times):
            generation = server.metric("moe_rank_generation")
            running, when = load.running(), time.monotonic()
            before = server.log().count(" is lost: ")
            cut()
            known = chaos.await_lost(server, before, 10 * PATIENCE)
            assert known is not None, server.log()[-2000:]
            assert known - when <= 2 * PATIENCE, known - when
            gap = load.gap_after(when, running, 20 * PATIENCE)
            assert gap is not None, "streams do not go on:\n" + server.log()[-3000:]
            known_after.append(known - when)
            gaps.append(gap)
            time.sleep(0.5)
            mend()
            assert wait_until(lambda: server.metric("moe_ranks_alive") == 2, 60), server.log()[-3000:]
            assert server.metric("moe_rank_generation") > generation
            assert not load.wrong, load.wrong[:2]
    finally:
        load.stop()
    assert not load.wrong, load.wrong[:2]
    return known_after, gaps


def broken_connections(model, times):
    """The control connection of one of two ranks hangs."""
    port, secret = free_port(), uuid.uuid4().hex
    proxy = Proxy(port)
    try:
        with front_waiting_for(1, model=demo_dir(model), port=port, secret=secret) as server:
            assert wait_until(lambda: "waiting for 1 of 2 ranks" in server.log(), 20), server.log()
            with joined(f"127.0.0.1:{proxy.port}", "--rejoin", model=demo_dir(model), secret=secret):
                server.wait_ready()
                return expect_partitions(server, demo_dir(model), proxy.hangs.set, proxy.hangs.clear, times)
    finally:
        proxy.close()


class Namespace:
    """A network namespace that is connected to ours by a pair of virtual interfaces."""

    def __init__(self):
        tag = uuid.uuid4().hex[:6]
        self.name, self.here, there = f"moe{tag}", f"mh{tag}", f"mt{tag}"
        net = f"10.{int(tag[:2], 16)}.{int(tag[2:4], 16)}"
        self.here_address, self.there_address = f"{net}.1", f"{net}.2"
        self._ip("netns", "add", self.name)
        try:
            self._ip("link", "add", self.here, "type", "veth", "peer", "name", there, "netns", self.name)
            self._ip("addr", "add", f"{self.here_address}/24", "dev", self.here)
            self._ip("link", "set", self.here, "up")
            self._ip("-n", self.name, "addr", "add", f"{self.there_address}/24", "dev", there)
            self._ip("-n", self.name, "link", "set", there, "up")
            self._ip("-n", self.name, "link", "set", "lo", "up")
        except subprocess.CalledProcessError:
            self.close()
            raise

    @staticmethod
    def _ip(*arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    def cut(self):
        self._ip("link", "set", self.here, "down")

    def mend(self):
        self._ip("link", "set", self.here, "up")

    def close(self):
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, check=False)


def link_downs(model, times):
    """The link to one of two ranks goes down, rows and control connection alike. Skips the test where there are no network
    namespaces."""
    try:
        namespace = Namespace()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces here: {getattr(error, 'stderr', error)}")
    port, secret = free_port(), uuid.uuid4().hex
    model = demo_dir(model)
    try:
        with front_waiting_for(1, "--rank-host", namespace.here_address, "--trusted-rank-network", model=model, port=port,
                               secret=secret) as server:
            assert wait_until(lambda: "waiting for 1 of 2 ranks" in server.log(), 20), server.log()
            with joined(f"{namespace.here_address}:{port}", "--rejoin", "--trusted-rank-network", model=model,
                        secret=secret, prefix=("ip", "netns", "exec", namespace.name), host=namespace.there_address):
                server.wait_ready()
                return expect_partitions(server, model, namespace.cut, namespace.mend, times)
    finally:
        namespace.close()

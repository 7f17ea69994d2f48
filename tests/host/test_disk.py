

def test_a_file_system_without_locks_is_refused(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("kedge.host.disk.fcntl.flock", refuse)
    with pytest.raises(UsageError, match="has no locks"):
        LocalDisk().lock(str(tmp_path / "lock"))

"""Images: imported, built, committed, exported, and pulled from Debian's docker-registry."""
import gzip
import pathlib
import uuid

import image_archive
import pytest
from cloche import AsyncCloche, InvalidError, NotFoundError
from cloche.errors import ClocheError
from image_registry import Image
from small_image import small_image


@pytest.fixture
def tag():
    return "py" + uuid.uuid4().hex[:12]


@pytest.fixture
def archive():
    return image_archive.docker([image_archive.rootfs()], tag=None, Env=["PATH=/bin", "WORD=there"], Cmd=["echo", "hello"])


async def said(client, image, command):
    async with await client.sandboxes.create(image=image, memory="64M") as s:
        return (await s.exec(command)).stdout


async def test_an_archive_becomes_an_image_that_is_listed_tagged_and_deleted(client, archive, tag):
    image = await client.images.import_file(gzip.compress(archive, 1), name=f"{tag}/base:1")
    assert (image.name, image.full_name, image.public) == (f"{tag}/base:1", f"docker.io/{tag}/base:1", False)
    assert image.config.cmd == ["echo", "hello"] and "WORD=there" in image.config.env and image.config.labels == {}
    assert len(image.layers) == 1 and image.layers[0].size > 0 and image.history and not image.extra and not image.config.extra
    assert await said(client, image.name, "echo $WORD") == "there\n"
    again = await client.images.tag(image.name, f"{tag}/other:2")
    assert (again.name, again.digest) == (f"{tag}/other:2", image.digest)
    assert (await client.images.get(image.digest[7:19])).digest == image.digest
    assert {i.name for i in await client.images.list()} >= {f"{tag}/base:1", f"{tag}/other:2"}
    assert (await client.images.set_public(again.name, True)).public
    await client.images.delete(image.name)
    await client.images.delete(again.name)
    with pytest.raises(NotFoundError):
        await client.images.get(image.name)
    assert (await client.images.prune()).bytes >= 0


async def test_what_is_exported_is_imported_again(client, tag):
    image = await client.images.import_folder(small_image(), name=f"{tag}:1", config={"Env": ["A=b"]})
    async with await client.images.export(image.name) as pieces:
        data = await pieces.read_all()
    back = await client.images.import_file(data, name=f"{tag}:2")
    assert back.layers[0].files == image.layers[0].files and back.config.env == image.config.env
    assert await said(client, back.name, ["sh", "-c", "echo $A"]) == "b\n"
    for name in (image.name, back.name):
        await client.images.delete(name)


async def test_a_build_tells_its_steps(client, archive, tag, tmp_path):
    await client.images.import_file(archive, name=f"{tag}:1")
    pathlib.Path(tmp_path, "a.txt").write_text("from the folder\n")
    events = []
    dockerfile = f"FROM {tag}:1\nARG X=1\nCOPY a.txt /\nRUN : {tag} && echo step $X && cat /run/secrets/key > /dev/null\nCMD cat /a.txt\n"
    dockerfile = dockerfile.replace("RUN ", "RUN --mount=type=secret,id=key ")
    image = await client.images.build(
        dockerfile, context=tmp_path, tags=[f"{tag}:2", f"{tag}:3"], args={"X": "7"}, labels={"k": "v"}, secrets={"key": b"hush"}, on_event=events.append
    )
    assert image.name == f"{tag}:2" and image.config.labels == {"k": "v"} and len(image.layers) == 3
    assert [e.text for e in events if e.type == "output"] == ["step 7\n"]
    assert any(e.type == "step" and e.state == "done" and e.step == e.total for e in events) and not any(e.extra for e in events)
    assert await said(client, f"{tag}:3", "cat /a.txt") == "from the folder\n"
    del events[:]
    await client.images.build(f"FROM {tag}:1\nRUN touch /b\n", on_event=events.append)
    await client.images.build(f"FROM {tag}:1\nRUN touch /b\n", on_event=events.append)
    assert "cached" in [e.state for e in events]
    with pytest.raises(InvalidError, match="line 2"):
        await client.images.build(f"FROM {tag}:1\nRUM x\n")
    with pytest.raises(ClocheError):
        await client.images.build(f"FROM {tag}:1\nRUN exit 3\n")
    for image in await client.images.list():
        if image.name.startswith(tag):
            await client.images.delete(image.name)


async def test_a_sandbox_and_a_checkpoint_become_images(client, archive, tag):
    await client.images.import_file(archive, name=f"{tag}:1")
    async with await client.sandboxes.create(image=f"{tag}:1", memory="64M", user="root") as s:
        await s.exec("echo more > /etc/more")
        made = await client.images.commit(s, f"{tag}:2", comment="more of it")
        point = await s.checkpoint()
        other = await client.images.commit(point, f"{tag}:3")
        await client.checkpoints.delete(point)
    assert len(made.layers) == 2 and made.history[-1]["comment"] == "more of it"
    for image in (made, other):
        assert await said(client, image.name, ["cat", "/etc/more"]) == "more\n"
    for n in (1, 2, 3):
        await client.images.delete(f"{tag}:{n}")


async def test_an_image_is_pulled_with_progress(client, registry, tag):
    image = Image().layer(image_archive.rootfs()).layer({"text": b"pulled\n", "more": tag.encode()}).config(Env=["PATH=/bin"])
    digest = registry.push(image, f"{tag}:1")
    seen = []
    pulled = await client.images.pull(f"{registry.host}/{tag}:1", on_progress=seen.append)
    assert pulled.digest == digest and len(pulled.layers) == 2
    assert seen and (seen[-1].layers, seen[-1].ready) == (2, 2) and not any(p.extra for p in seen)
    assert await said(client, pulled.name, ["cat", "/text"]) == "pulled\n"
    assert not (await client.images.outdated(pulled.name)).outdated
    assert not (await client.images.outdated(pulled.name, username="anna", password="x")).outdated
    registry.push(image.layer({"new": b"x"}), f"{tag}:1")
    state = await client.images.outdated(pulled.name)
    assert state.outdated and state.registry_digest != state.digest
    await client.images.delete(pulled.name)
    for name, error in ((f"{registry.host}/none:1", ClocheError), ("Not A Name", InvalidError)):
        with pytest.raises(error):
            await client.images.pull(name)


assert AsyncCloche

"""What FileObjects and FileSets stand for, found without fetching more than lists them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from holdfast.data.croissant.archives.archive import Archive
from holdfast.data.croissant.archives.opening import is_vague, says_archive
from holdfast.data.croissant.archives.pool import ArchivePool, where_of
from holdfast.data.croissant.document.model import (
    FileObject,
    FileSet,
    Metadata,
    Source,
    Transform,
)
from holdfast.data.croissant.fetching.access import file_name, is_remote
from holdfast.data.croissant.fetching.file_requests import FileRequest
from holdfast.data.croissant.files.contents import (
    Contents,
    members_of_archive,
    spellings,
    whole_files,
)
from holdfast.data.croissant.files.local_files import (
    LocalFolder,
    is_description,
    missing_member,
)
from holdfast.data.croissant.files.manifests import lines_of
from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.files.origins import Origins
from holdfast.data.croissant.files.patterns import Patterns
from holdfast.errors import InputError


class Listing:
    """Lists the members of a description's resources."""

    def __init__(self, metadata: Metadata, origins: Origins, archives: ArchivePool) -> None:
        self._metadata, self._origins, self._archives = metadata, origins, archives
        self._known: dict[str, list[Member]] = {}
        self._asked: list[str] = []  # what is being listed, for the sake of the last

    def members(self, identity: str) -> list[Member]:
        """The members of a resource; the list is shared, not to be changed."""
        if identity not in self._known:
            try:
                resource = self._metadata.resource(identity)
            except KeyError:
                ids = [part.id for part in self._metadata.file_objects]
                ids += [part.id for part in self._metadata.file_sets]
                raise InputError(
                    "no FileObject or FileSet has this id",
                    code="unknown-name",
                    path=self._origins.folder.label,
                    found=repr(identity),
                    expected=f"one of {', '.join(map(repr, ids[:20]))}" if ids else "distribution",
                ) from None
            with self._asking(identity):
                if isinstance(resource, FileSet):
                    self._known[identity] = self._file_set(resource)
                else:
                    self._known[identity] = [self._file_object(resource)]
        return self._known[identity]

    @contextmanager
    def _asking(self, identity: str) -> Iterator[None]:
        if identity in self._asked:
            raise InputError(
                "containedIn forms a cycle",
                code="conflict",
                path=self._origins.folder.label,
                found=" in ".join(map(repr, [*self._asked, identity])),
                remedy="correct containedIn",
            )
        self._asked.append(identity)
        try:
            yield
        finally:
            self._asked.pop()

    # -- FileObjects -------------------------------------------------------------------------------

    def _file_object(self, part: FileObject) -> Member:
        mapped = self._origins.mapping.get(part.id)
        url = part.content_url or ""
        if mapped is not None and mapped.is_file():
            name = file_name(url) if is_remote(url) else (url or mapped.name)
            return Member(part.id, name, mapped, None, mapped.stat().st_size, part.id)
        if part.is_repository or mapped is not None:
            raise InputError(
                f"FileObject {part.id!r} is a folder, not a file ({part.at})",
                code="invalid-value",
                path=mapped or url,
                remedy="take the files from a FileSet or FileObject that is contained in it",
            )
        if is_remote(url):
            return Member(part.id, file_name(url), url, None, None, part.id)
        what = f"FileObject {part.id!r} ({part.where('sc:contentUrl')})"
        if part.contained_in:
            return self._contained(part, url, what)
        if not url:
            raise InputError(
                f"{what} has no contentUrl",
                code="missing-key",
                path=self._origins.folder.label,
                remedy="state it",
            )
        path = self._origins.folder.find(url, what)
        if not path.is_file():
            raise InputError(
                f"{what} is a folder",
                code="invalid-value",
                path=path,
                expected="a file",
                remedy="use a FileSet",
            )
        name = path.relative_to(self._origins.folder.root).as_posix()
        return Member(part.id, name, path, None, path.stat().st_size, part.id)

    def _contained(self, part: FileObject, url: str, what: str) -> Member:
        for holder in part.contained_in:
            if folder := self._origins.named.get(holder.target):
                path = folder.find(url, what)
                name = path.relative_to(folder.root).as_posix()
                return Member(part.id, name, path, None, path.stat().st_size)
        everything = [
            contents for holder in part.contained_in for contents in self._contents(holder, None)
        ]
        for name in spellings(url):
            for contents in everything:
                if name in contents.names:
                    return contents.member(part.id, name)
        if not url and len(everything) == 1 and len(everything[0].names) == 1:
            return everything[0].member(part.id, next(iter(everything[0].names)))
        names = (name for contents in everything for name in contents.names)
        where = everything[0].where if everything else self._origins.folder.label
        raise missing_member(url, names, where, what)

    # -- FileSets ----------------------------------------------------------------------------------

    def _file_set(self, part: FileSet) -> list[Member]:
        patterns = Patterns(part.includes, part.excludes)
        members: dict[Any, Member] = {}  # by what the file is, since containers may share some
        if part.contained_in:
            everything = [
                contents
                for holder in part.contained_in
                for contents in self._contents(holder, patterns)
            ]
        else:
            everything = [self._folder(self._origins.folder, patterns)]
        for contents in everything:
            chosen = patterns.choose(contents.names)
            if contents.files:
                chosen = (
                    name
                    for name in contents.names
                    if patterns(name) or patterns(PurePosixPath(name).name)
                )
            for name in sorted(chosen):
                member = contents.member(part.id, name)
                place = member.location
                members.setdefault((place, member.inside) if member.inside else place, member)
        if part.contained_in:
            return list(members.values())
        # A file that a FileObject lists and that is not there: whoever reads it is told so.
        root, there = self._origins.folder.root, set(map(self._owners.get, members))
        for place, owner in self._owners.items():
            name = str(PurePosixPath(place).relative_to(root)) if root in place.parents else ""
            if owner not in there and name and patterns(name):
                there.add(owner)
                location = self._origins.mapping.get(owner, place)
                members[location] = Member(part.id, name, location, owner=owner)
        return [
            member
            for member in sorted(members.values(), key=lambda member: member.fullpath)
            if patterns.names(member.fullpath)
            or "/" in member.fullpath
            or not is_description(Path(member.location))
        ]

    # -- containers --------------------------------------------------------------------------------

    def _contents(self, holder: Source, patterns: Patterns | None) -> list[Contents]:
        """What a container holds; `patterns` may leave out what they would not choose."""
        try:
            resource = self._metadata.resource(holder.target)
        except KeyError:
            raise InputError(
                f"containedIn refers to an unknown id ({holder.at})",
                code="unknown-name",
                path=self._origins.folder.label,
                found=repr(holder.target),
                expected="the id of a FileObject or FileSet",
            ) from None
        formats = resource.encoding_formats
        if isinstance(resource, FileObject):
            if resource.id in self._origins.named:
                return [self._folder(self._origins.named[resource.id], patterns)]
            if resource.is_repository and resource.id not in self._origins.mapping:
                return [self._repository(resource)]
        members = self.members(resource.id)
        whole: dict[str, Member] = {}
        contents = []
        for member in members:
            archive = self._look_into(member, formats, holder.transforms)
            if any(step.read_lines for step in holder.transforms):
                contents.append(self._manifest(resource, member, archive))
            elif archive is not None:
                contents.append(members_of_archive(member, archive))
            else:
                if member.fullpath in whole:
                    contents.append(whole_files(whole, resource.id))
                    whole = {}
                whole[member.fullpath] = member
        if whole:
            contents.append(whole_files(whole, resource.id))
        return contents

    def _look_into(
        self, member: Member, formats: Sequence[str], transforms: Sequence[Transform]
    ) -> Archive | None:
        """The archive that a member is; None where it is a plain file, or is to be taken as one."""
        chain = member.inside or ()
        for step in transforms:
            if step.regex or step.replace or step.separator or step.json_path:
                raise InputError(
                    f"unsupported transform in containedIn ({step.at})",
                    code="unsupported",
                    path=self._origins.folder.label,
                    expected="readLines and unArchive in containedIn",
                    remedy="choose them by includes and excludes",
                )
            if step.un_archive:
                return self._archives.get(member.location, chain, member.owner)
            if "cr:unArchive" in step.written:
                return None
        if says_archive(formats, member.filename):
            return self._archives.get(member.location, chain, member.owner)
        if is_vague(formats) and isinstance(member.location, Path):
            return self._archives.find(member.location, chain, member.owner)
        return None

    def _folder(self, folder: LocalFolder, patterns: Patterns | None) -> Contents:
        hidden = patterns.shows_hidden if patterns else True
        names = dict.fromkeys(folder.walk(hidden=hidden))

        def member(asking: str, name: str) -> Member:
            path = folder.check(folder.root / name)
            owner = self._owners.get(path, "")
            return Member(asking, name, path, None, path.stat().st_size, owner)

        return Contents(names, member, str(folder.root))

    @cached_property
    def _owners(self) -> dict[Path, str]:
        """The local files that FileObjects name, whose checksums also hold where a FileSet finds them."""
        root = self._origins.folder.root
        return {
            root / spelling: part.id
            for part in self._metadata.file_objects
            if part.content_url and not part.contained_in and not is_remote(part.content_url)
            for spelling in spellings(part.content_url)
        }

    def _repository(self, part: FileObject) -> Contents:
        from holdfast.data.croissant.fetching.hub import list_repository

        files = {file.path: file for file in list_repository(part, self._origins.fetcher)}

        def member(asking: str, name: str) -> Member:
            file = files[name]
            request = FileRequest(url=file.location, sha256=file.sha256, size=file.size, name=name)
            self._origins.expect(request)
            return Member(asking, name, file.location, None, file.size)

        return Contents(files, member, part.content_url or part.id)

    def _manifest(
        self, resource: FileObject | FileSet, member: Member, archive: Archive | None
    ) -> Contents:
        """The files that the lines of a manifest name, relative to where the manifest itself stands."""
        if archive is not None:
            texts = [b"".join(archive.chunks(name)) for name in archive.sizes]
        else:
            texts = [self._bytes(member)]
        where = where_of(member.location, member.inside or ())
        said = resource.content_url if isinstance(resource, FileObject) else None
        base: str | Path = said if said and is_remote(said) else member.location
        folder = self._origins.folder
        names = {
            path: location
            for text in texts
            for path, location in lines_of(text, base, folder, where)
        }
        return Contents(names, lambda asking, name: Member(asking, name, names[name]), where)

    def _bytes(self, member: Member) -> bytes:
        if member.inside is None:
            return self._origins.local(member.location, member.owner).read_bytes()
        with self._archives.of(member) as archive:
            return b"".join(archive.chunks(member.inside[-1]))

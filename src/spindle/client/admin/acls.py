"""ACLs: describe, create and delete (KIP-140, KIP-290)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from spindle.authorization.operations import Operation, PatternType, Permission, ResourceType
from spindle.client.admin.refusals import raise_refusal
from spindle.client.blocking.client import WireClient
from spindle.metadata.security import AccessControlEntry
from spindle.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from spindle.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from spindle.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


class AclQuery(NamedTuple):
    """The ACLs to describe or to delete. None and ANY match everything."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def filter_fields(self) -> dict[str, Any]:
        """Return the query as the fields of DescribeAcls and DeleteAcls."""
        return {
            "resource_type_filter": self.resource_type,
            "resource_name_filter": self.resource_name,
            "pattern_type_filter": self.pattern_type,
            "principal_filter": self.principal,
            "host_filter": self.host,
            "operation": self.operation,
            "permission_type": self.permission,
        }


def describe_acls(client: WireClient, query: AclQuery) -> list[AccessControlEntry]:
    """Return the ACLs that match.

    Raises:
        ApiError: the cluster refused; SECURITY_DISABLED without an authorizer.
        ClientError: no node could be asked.
    """
    request = DescribeAclsRequest(**query.filter_fields())
    answer = client.retrying(lambda: client.ask(request, DescribeAclsResponse))
    raise_refusal(answer.error_code, answer.error_message)
    return [
        AccessControlEntry(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in answer.resources
        for acl in resource.acls
    ]


def create_acls(client: WireClient, acls: Sequence[AccessControlEntry]) -> None:
    """Add ACLs; those that exist already stay.

    Raises:
        ApiError: the cluster refused one of them.
        ClientError: no node could be asked.
    """
    request = CreateAclsRequest(
        creations=[
            CreateAclsRequest.AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
            for acl in acls
        ]
    )
    answer = client.retrying(lambda: client.ask(request, CreateAclsResponse))
    for result in answer.results:
        raise_refusal(result.error_code, result.error_message)


def delete_acls(client: WireClient, queries: Sequence[AclQuery]) -> list[AccessControlEntry]:
    """Remove the ACLs that match one of the queries, and return them.

    Raises:
        ApiError: the cluster refused one of them.
        ClientError: no node could be asked.
    """
    filters = [DeleteAclsRequest.DeleteAclsFilter(**query.filter_fields()) for query in queries]
    request = DeleteAclsRequest(filters=filters)
    answer = client.retrying(lambda: client.ask(request, DeleteAclsResponse))
    removed = []
    for result in answer.filter_results:
        raise_refusal(result.error_code, result.error_message)
        for acl in result.matching_acls:
            raise_refusal(acl.error_code, acl.error_message)
            removed.append(
                AccessControlEntry(
                    acl.resource_type,
                    acl.resource_name,
                    acl.pattern_type,
                    acl.principal,
                    acl.host,
                    acl.operation,
                    acl.permission_type,
                )
            )
    return removed

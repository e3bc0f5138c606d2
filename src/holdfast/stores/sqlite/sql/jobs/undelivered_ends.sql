SELECT json_group_array(child_id) FROM (SELECT child_id FROM holdfast_awaited_ends LIMIT :limit)
